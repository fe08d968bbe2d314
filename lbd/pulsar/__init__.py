"""The only package that talks to Pulsar."""
