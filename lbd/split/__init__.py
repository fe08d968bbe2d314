"""Splitting: where Pulsar's algorithms would cut a bundle, and which bundles it would cut. Pure."""
