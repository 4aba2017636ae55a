"""The paper's experiments, each a function that returns a record; the core never imports them."""
