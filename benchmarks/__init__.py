"""Timings and sizes: measured here, never asserted in a test."""
