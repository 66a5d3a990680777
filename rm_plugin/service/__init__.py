"""The ResourceManager's service: gRPC server, state store, the loop that runs rounds."""
