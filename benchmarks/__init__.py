"""How good and how fast evenflow is, as ratios between contenders in one run; each module is a command."""
