"""What the scripted cloud is made of: what it sells, how it misbehaves, where its state is, what starts a machine."""
