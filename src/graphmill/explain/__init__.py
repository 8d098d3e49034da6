"""Why a link was predicted: the edges and paths of the graph that carried its score."""
