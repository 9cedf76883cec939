"""Image layers that mix images, erase patches, or combine other image layers."""
