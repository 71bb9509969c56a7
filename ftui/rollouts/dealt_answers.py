"""How the answers of a rollout are dealt to the processes of a run; both the engine and the estimate ask."""


def dealt_size(num_answers: int, group_size: int, max_num_seqs: int | None, num_processes: int) -> int:
    """Answers that are dealt together: as many as a process generates at once, or without a limit a group, as far as
    every process gets some."""
    return min(max_num_seqs or group_size, -(-num_answers // num_processes))


def largest_part(num_answers: int, size: int, num_processes: int) -> int:
    """Answers of the process that has the most, the first one, where so many (`dealt_size`) are dealt in turn."""
    return sum(min(size, num_answers - start) for start in range(0, num_answers, size * num_processes))
