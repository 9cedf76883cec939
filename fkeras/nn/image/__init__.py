"""Image functions on arrays: sizes and geometry, patches, boxes, colours, filters, quality.

Arguments that all functions share, documented here only:
    images: floating array of shape (b, h, w, c) or (h, w, c), with "channels_first"
        (b, c, h, w) or (c, h, w). Functions of single pixels accept any shape.
    data_format: "channels_last" (also None) or "channels_first".
    value_range: (lowest, highest) value of a pixel.
    interpolation: "bilinear" or "nearest", unless listed.
    fill_value: value outside the image for the fill mode "constant".
"""
