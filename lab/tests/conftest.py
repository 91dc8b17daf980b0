"""The laboratory's commands are joined to the application, as the entry points do it in a shell."""

import krylow_lab.commands.bench
import krylow_lab.commands.report
import krylow_lab.commands.reproduce  # noqa: F401
