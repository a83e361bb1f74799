"""Engine 1: virtual time. The message level for protocols, the quantum level for large clusters; both seeded."""
