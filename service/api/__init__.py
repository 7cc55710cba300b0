"""HTTP: parse, call one verb of the frontier, render. One module per resource."""
