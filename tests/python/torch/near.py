"""How near the numbers of a pipeline are to those without one."""


def difference(got, want):
    """The norm of the difference of two tensors, relative to the norm of the wanted one; 0: equal."""
    assert got.shape == want.shape and got.dtype == want.dtype, (got, want)
    apart, norm = (got - want).norm().item(), want.norm().item()
    return apart / norm if norm else apart


def is_near(got, want):
    """Whether two tensors of type double are equal up to the order in which they are summed."""
    return difference(got, want) < 1e-13
