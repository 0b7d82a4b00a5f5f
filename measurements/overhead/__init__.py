"""Measures what the hook costs a program that has the GPU to itself."""
