"""Files -> rows and columns, and picks -> files. Nothing here knows what a view or a selection is.

`rows` is the seam: a `RowFile` stands for rows that stay in their files. One module per format
family reads; `read` dispatches on the ending; `write` puts a table or a picture, and `convert` a
folder of shards, into place whole or not at all. Import from the modules: `rows` needs no Arrow.
"""
