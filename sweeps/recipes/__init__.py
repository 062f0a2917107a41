"""What a sweep is: the recipe, its space, its first points, how it is read, and the YAML files that come along. Must
not import anything that runs."""
