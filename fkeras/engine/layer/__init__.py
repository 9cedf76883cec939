"""The class `Layer`, and the checks around the methods that authors write."""
