"""The model catalogue: which models there are, which are installed, and how one gets here."""
