"""Reshaping, padding, cropping and upsampling."""
