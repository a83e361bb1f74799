"""What-if in virtual time: scenario files and replays, under the real controller and policies; seeded, no Spark."""
