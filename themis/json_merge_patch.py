"""JSON merge patches (RFC 7396)."""


def merged(content: object, patch: object) -> object:
    """Return JSON content after a merge patch: null removes a key, objects merge, anything else replaces.

    Example: {"a": 1, "b": {"c": 2}} after {"a": null, "b": {"d": 3}} is {"b": {"c": 2, "d": 3}}.
    """
    if not isinstance(patch, dict):
        return patch
    result = dict(content) if isinstance(content, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
