VERSION: str
REVISION: str
COMMIT: str
BUILDS: dict[str, str]  # torch's release -> the extension's file, without suffix
