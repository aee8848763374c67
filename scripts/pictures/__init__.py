"""The pictures of the docs, drawn from simulations on virtual time or taken of real pages."""
