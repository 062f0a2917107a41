"""Content of a schema from the files of other tools, with a module for each tool."""
