"""Pictures: plain data (`picture`), drawn with matplotlib (`drawing`), which is an extra: `evenflow[plot]`."""
