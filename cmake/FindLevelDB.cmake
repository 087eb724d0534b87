# Finds the system's LevelDB and defines LevelDB::leveldb; where it is missing, says which package brings it.

find_path(LevelDB_INCLUDE_DIR leveldb/db.h)
find_library(LevelDB_LIBRARY leveldb)
mark_as_advanced(LevelDB_INCLUDE_DIR LevelDB_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LevelDB
  REQUIRED_VARS LevelDB_LIBRARY LevelDB_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "LevelDB's library and headers (leveldb/db.h) were not found. Install them with one of
    Debian, Ubuntu:  apt-get install libleveldb-dev
    Fedora:          dnf install leveldb-devel
    conda:           conda install -c conda-forge leveldb
  or name their place with -DCMAKE_PREFIX_PATH=/path/to/prefix")

if(LevelDB_FOUND AND NOT TARGET LevelDB::leveldb)
  add_library(LevelDB::leveldb UNKNOWN IMPORTED)
  set_target_properties(LevelDB::leveldb PROPERTIES
    IMPORTED_LOCATION "${LevelDB_LIBRARY}" INTERFACE_INCLUDE_DIRECTORIES "${LevelDB_INCLUDE_DIR}")
endif()
