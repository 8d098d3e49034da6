"""YAML instances of the components, and the resources they share."""
