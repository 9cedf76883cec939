"""Image layers that change colors, brightness and sharpness."""
