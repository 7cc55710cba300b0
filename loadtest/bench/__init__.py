"""`freshet bench`: how near serving, memory and scale come to what the machine can do."""
