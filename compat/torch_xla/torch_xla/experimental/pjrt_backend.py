"""Imported for its effect, which torch_pjrt has from the start."""
