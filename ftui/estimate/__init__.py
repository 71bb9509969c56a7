"""What a run will take, before it is paid for: memory, time, disk and money, in closed form. No torch, no pydantic."""
