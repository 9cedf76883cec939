"""Image layers that combine images, erase patches, or combine other image layers."""
