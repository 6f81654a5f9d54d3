"""How a running stage is watched: what it shows, whether it is well, what it logs and traces."""
