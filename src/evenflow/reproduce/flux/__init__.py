"""Flux (Shah, Hellerstein, Chandrasekaran, Franklin), reproduced on the quantum level: FX-E1 to FX-E12."""
