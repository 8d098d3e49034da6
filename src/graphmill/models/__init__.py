"""Pure ``nn.Module``s, one system a file. No data loading, no loss, no loop."""
