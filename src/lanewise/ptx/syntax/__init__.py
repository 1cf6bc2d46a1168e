"""The parsers: from the tokens of PTX text to the objects of `ptx/model/`."""
