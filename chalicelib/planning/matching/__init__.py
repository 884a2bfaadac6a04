"""Which machines and offers meet what a run and its fleet ask for."""
