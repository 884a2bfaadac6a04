"""The shell around the decisions: due → load → decide → lint → commit → execute."""
