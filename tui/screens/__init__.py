"""The screens: each says which canvases it has, what its keys do, and when it looks at the files again."""
