"""`python -m fairnepv`, the same as the command."""

from fairnepv.cli import main

main()
