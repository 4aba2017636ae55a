"""Pictures where users have them: a folder, a .zip, a .tar, a column of a Parquet file.

They stay where they are and are read when they are needed. One that cannot be read says why, for
the caller to count; it never stops the others.
"""

from fairnepv_studies.stores.base import Pictures, without_ending
from fairnepv_studies.stores.opening import open_pictures

__all__ = ["Pictures", "open_pictures", "without_ending"]
