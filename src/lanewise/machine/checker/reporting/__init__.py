"""Reports of checks in other forms: the source with counters beside each line, HTML, SARIF, annotations."""
