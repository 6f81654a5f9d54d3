"""HTML reports: self-contained files that need no network, with a light and a dark colour scheme."""
