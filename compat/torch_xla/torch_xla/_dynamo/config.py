"""Settings that torch_pjrt does not need."""

skip_input_data_check = False
outside_on_graph = False
