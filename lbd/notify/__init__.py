"""Notifications of people by a webhook: which events (pure), their text, and the thread that sends them."""
