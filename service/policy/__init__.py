"""Pure mathematics: arrays in, arrays out; no Redis, no clock, no HTTP."""
