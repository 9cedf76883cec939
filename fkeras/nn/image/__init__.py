"""Plain functions of image arrays: sizes and geometry, patches, boxes, colours, filters, quality."""
