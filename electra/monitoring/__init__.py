"""Alarms and progress of a pre-training run; nothing here changes what is learned."""
