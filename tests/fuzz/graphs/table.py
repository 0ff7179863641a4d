"""The table of operators: OPERATORS is a list of (name, weight, function of a Builder)."""

OPERATORS = []


def operator(weight=1.0):
    """Adds a function to the table. It adds one node or a few to the builder that it is given, or
    raises Reject."""

    def add(function):
        OPERATORS.append((function.__name__, weight, function))
        return function

    return add
