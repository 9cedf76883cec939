"""Steps whose numbers are not finite: finding, reporting and leaving out."""
