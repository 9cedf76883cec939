"""File formats that hold arrays and JSON: zip archives, HDF5, and limits on what they may ask for."""
