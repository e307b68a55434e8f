"""What is known of an op stands in its row. A table by name beside it names ops that there are."""

import pytest

from torch_pjrt import _C

TABLES = {where: (of, names) for where, of, names in _C.named_tables()}


def test_every_row_of_the_op_table_is_registered():
    assert _C.table_errors() == []


@pytest.mark.parametrize("where", TABLES)
def test_each_name_of_a_table_by_name_is_an_ops(where):
    of, names = TABLES[where]
    assert names, "an empty table holds nothing"
    assert _C.unknown_names(of, names) == []


@pytest.mark.parametrize("where", TABLES)
def test_a_misspelt_name_is_found(where):
    of, names = TABLES[where]
    misspelt = names[0] + "q"
    assert _C.unknown_names(of, [*names, misspelt]) == [misspelt]
