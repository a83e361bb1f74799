"""What-if in virtual time: scenario files and replays, under the real balancer and policies; seeded, no Spark."""
